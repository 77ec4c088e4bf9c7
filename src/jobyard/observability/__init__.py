"""Events become logs here, and metrics and alerts later."""
