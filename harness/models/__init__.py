"""Models a server can load without a download: a tiny random Llama and larger models' shapes."""
