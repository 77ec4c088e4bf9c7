"""Python functions as handlers: async ones on the loop, others in threads."""
