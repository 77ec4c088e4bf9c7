"""Take orders: two ways to enqueue, both safe."""

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from jobyard.errors import JobNotFound
from shop.jobs import send_receipt, wait, yard
from shop.models import Order


@csrf_exempt  # so that curl can post; leave it out of a real application
@require_POST
def take_order(request: HttpRequest) -> HttpResponse:
    """The job is part of the transaction: it exists if, and only if, the order does."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        job = wait(send_receipt.options(transaction=connection).enqueue(order.pk))
        Order.objects.filter(pk=order.pk).update(job_id=job.id)
        if order.email.endswith("@example.invalid"):
            transaction.set_rollback(True)
            return JsonResponse({"error": "This address cannot exist."}, status=400)
    return JsonResponse({"order": order.pk, "job": job.id}, status=201)


@csrf_exempt
@require_POST
def take_order_on_commit(request: HttpRequest) -> HttpResponse:
    """For jobs in another database, such as Redis: a crash right after the commit loses the job."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        transaction.on_commit(lambda: wait(send_receipt.enqueue(order.pk)))
    return JsonResponse({"order": order.pk}, status=201)


@require_GET
def job(request: HttpRequest, job_id: str) -> HttpResponse:
    try:
        found = wait(yard.get(job_id))
    except JobNotFound as error:
        return JsonResponse({"error": str(error)}, status=404)
    return JsonResponse({"state": found.state, "result": found.result, "created_at": found.created_at})
