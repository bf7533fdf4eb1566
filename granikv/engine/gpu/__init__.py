"""The decode backend on a GPU: CUDA graphs, one variant for each attention backend."""
