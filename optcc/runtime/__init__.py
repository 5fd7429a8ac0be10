"""The reference runtime: the one place that opens ONNX Runtime sessions."""
