"""holdfast as one of the systems of a side-by-side benchmark driver."""
