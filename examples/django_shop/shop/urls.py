"""The addresses of the shop."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("orders", views.create_order),
    path("orders/<int:order_id>", views.read_order),
    path("jobs/<str:job_id>", views.read_job),
    path("admin/", admin.site.urls),
]
