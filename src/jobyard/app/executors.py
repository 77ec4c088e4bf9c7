"""The executor of an app's handlers and workflows."""

from __future__ import annotations

from jobyard.executors.python.executor import PythonExecutor
from jobyard.executors.python.handlers import HandlerRegistry
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.executors.workflow.executor import WorkflowExecutor
from jobyard.ports.store import Store


def make_executor(handlers: HandlerRegistry, store: Store, max_payload_bytes: int) -> PythonExecutor:
    threads = HandlerThreadPool()
    workflows = WorkflowExecutor(store, threads, max_payload_bytes)
    return PythonExecutor(handlers, max_payload_bytes, workflows, threads)
