"""Imported as a module by transformers' image processors; nothing in it is used for text."""
