"""Orders, and the id of the job that sends their receipt."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    is_sent = models.BooleanField(default=False)
    job_id = models.CharField(max_length=36, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.email}"
