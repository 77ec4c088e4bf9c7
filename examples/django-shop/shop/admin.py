"""Orders in the admin, with the state of their job and a link to it."""

from django.conf import settings
from django.contrib import admin
from django.utils.html import format_html

from jobyard.errors import JobNotFound
from shop.jobs import wait, yard
from shop.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("email", "is_sent", "job")
    readonly_fields = ("job",)

    @admin.display(description="job")
    def job(self, order: Order) -> str:
        if not order.job_id:
            return "none"
        try:
            state = str(wait(yard.get(order.job_id)).state)
        except JobNotFound:
            state = "removed"
        return format_html('<a href="{}/#/jobs/{}">{}</a>', settings.JOBYARD_SERVER, order.job_id, state)
