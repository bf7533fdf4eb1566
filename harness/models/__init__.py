"""Models a server can load without a download: a tiny random Llama, and the shapes of larger ones."""
