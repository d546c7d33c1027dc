"""Known bugs, planted one at a time: the suite must notice every one of them."""
