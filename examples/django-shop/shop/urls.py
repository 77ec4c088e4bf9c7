"""Addresses of the shop."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.take_order),
    path("orders/on-commit", views.take_order_on_commit),
    path("jobs/<str:job_id>", views.job),
]
