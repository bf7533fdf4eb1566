"""Set-up of the project's ``.venv``: standard library only, since it runs before anything else."""
