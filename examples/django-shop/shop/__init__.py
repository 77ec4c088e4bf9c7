"""A shop with Django: orders, and jobs that are enqueued in the transaction of the request."""
