"""Capacity planning for prefill/decode inference clusters that load KV-cache from storage on either side."""

__version__ = "0.1.0"
