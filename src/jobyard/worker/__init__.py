"""Claims jobs, runs them, settles them, and stops well."""
