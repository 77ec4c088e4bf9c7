"""The Python API: `Jobyard`, tasks, job handles, schedules, and the processes around them."""
