"""A shop with Django: an order and its task commit together.

Run it with two processes:

    python manage.py migrate
    python manage.py runserver
    python manage.py holdfast worker
"""
