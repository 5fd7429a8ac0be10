"""Helpers over onnx_ir: io, signature, lint, shapes, edit."""
