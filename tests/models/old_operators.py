"""One small model for each operator whose spelling or meaning changed with the operator set."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["OLD_OPERATORS", "OldOperator"]


@dataclass(frozen=True, slots=True)
class OldOperator:
    """A body that reads `x` and makes `y`.

    Attributes:
        opset: The version it is written in.
        body: Text of the nodes.
        shape: Dims of x.
        wanted: Operators after the raise, in order.
    """

    opset: int
    body: str
    shape: str
    wanted: tuple[str, ...]
    weights: str = ""

    def model(self) -> ir.Model:
        """Make the model; x and y are float."""
        weights = f"<{self.weights}>" if self.weights else ""
        model = ir.from_onnx_text(
            f"""<ir_version: 8, opset_import: ["" : {self.opset}]>
            g (float[{self.shape}] x) => (float y) {weights} {{ {self.body} }}"""
        )
        for node in model.graph:
            node.name = f"{node.op_type}_{node.outputs[0].name}"
        return model


OLD_OPERATORS = {
    "upsample-7": OldOperator(
        7,
        'y = Upsample <mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]> (x)',
        "1,2,3,4",
        ("Resize",),
    ),
    "upsample-9-linear": OldOperator(
        9,
        'y = Upsample <mode = "linear"> (x, s)',
        "1,2,3,4",
        ("Resize",),
        "float[4] s = {1, 1, 2, 2}",
    ),
    "resize-10-nearest-up": OldOperator(
        10,
        'y = Resize <mode = "nearest"> (x, s)',
        "1,2,3,5",
        ("Resize",),
        "float[4] s = {1, 1, 1.7, 2.5}",
    ),
    "resize-10-nearest-down": OldOperator(
        10,
        'y = Resize <mode = "nearest"> (x, s)',
        "1,2,6,7",
        ("Resize",),
        "float[4] s = {1, 1, 0.6, 0.45}",
    ),
    "resize-10-linear": OldOperator(
        10,
        'y = Resize <mode = "linear"> (x, s)',
        "1,2,6,7",
        ("Resize",),
        "float[4] s = {1, 1, 0.6, 2}",
    ),
    "batchnorm-7": OldOperator(
        7,
        "y = BatchNormalization <spatial = 1> (x, a, b, a, c)",
        "2,3,4,4",
        ("BatchNormalization",),
        "float[3] a = {1, 2, 3}, float[3] b = {0, -1, 2}, float[3] c = {1, 2, 4}",
    ),
    "slice-7": OldOperator(
        7,
        "y = Slice <axes = [1, 2], starts = [1, -3], ends = [3, 1000]> (x)",
        "1,4,5,2",
        ("Slice",),
    ),
    "slice-7-no-axes": OldOperator(
        7, "y = Slice <starts = [0, 1], ends = [1, 3]> (x)", "2,4,3", ("Slice",)
    ),
    "topk-7": OldOperator(7, "y, i = TopK <k = 2, axis = 1> (x)", "2,5", ("TopK",)),
    "clip-7": OldOperator(7, "y = Clip <min = -0.25, max = 0.5> (x)", "3,4", ("Clip",)),
    "clip-7-upper": OldOperator(7, "y = Clip <max = 0.1> (x)", "3,4", ("Clip",)),
    "pad-7": OldOperator(7, "y = Pad <pads = [0, 1, 2, 0], value = 1.5> (x)", "3,4", ("Pad",)),
    "pad-7-reflect": OldOperator(
        7, 'y = Pad <mode = "reflect", pads = [0, 1, 0, 2]> (x)', "3,4", ("Pad",)
    ),
    "scatter-9": OldOperator(
        9,
        "y = Scatter <axis = 1> (x, i, u)",
        "1,4",
        ("ScatterElements",),
        "int64[1,2] i = {1, 3}, float[1,2] u = {7, 8}",
    ),
    "dropout-7": OldOperator(7, "y = Dropout <ratio = 0.3> (x)", "3,4", ("Dropout",)),
    "dropout-10-mask": OldOperator(10, "y, m = Dropout <ratio = 0.3> (x)", "3,4", ("Dropout",)),
    "softmax-11-last": OldOperator(11, "y = Softmax <axis = 1> (x)", "3,4", ("Softmax",)),
    "softmax-11-inner": OldOperator(
        11, "y = Softmax <axis = 1> (x)", "2,3,4", ("Shape", "Flatten", "Softmax", "Reshape")
    ),
    "softmax-11-negative": OldOperator(
        11, "y = Softmax <axis = -2> (x)", "2,3,4", ("Shape", "Flatten", "Softmax", "Reshape")
    ),
    "softmax-11-pooled": OldOperator(11, "y = Softmax (x)", "2,5,1,1", ("Softmax",)),
    "softmax-11-free": OldOperator(
        11,
        "t = Relu(x) y = Softmax <axis = 0> (t)",
        "N,3",
        ("Relu", "Shape", "Flatten", "Softmax", "Reshape"),
    ),
    "logsoftmax-7": OldOperator(7, "y = LogSoftmax <axis = 2> (x)", "2,3,4", ("LogSoftmax",)),
    "hardmax-9": OldOperator(
        9, "y = Hardmax (x)", "2,3,4", ("Shape", "Flatten", "Hardmax", "Reshape")
    ),
    "reducesum-11": OldOperator(
        11, "y = ReduceSum <axes = [1], keepdims = 0> (x)", "2,3,4", ("ReduceSum",)
    ),
    "reducesum-11-all": OldOperator(
        11, "t = ReduceSum (x) y = Add (x, t)", "2,3,4", ("ReduceSum", "Add")
    ),
    "split-11": OldOperator(
        11,
        "a, b = Split <axis = 1, split = [1, 3]> (x) y = Concat <axis = 1> (b, a)",
        "2,4",
        ("Split", "Concat"),
    ),
    "split-13-even": OldOperator(
        13, "a, b = Split <axis = 1> (x) y = Concat <axis = 1> (b, a)", "2,4", ("Split", "Concat")
    ),
    "squeeze-11": OldOperator(11, "y = Squeeze <axes = [1]> (x)", "2,1,3,1", ("Squeeze",)),
    "squeeze-11-all": OldOperator(11, "y = Squeeze (x)", "2,1,3,1", ("Squeeze",)),
    "unsqueeze-11": OldOperator(11, "y = Unsqueeze <axes = [0, 2]> (x)", "2,3", ("Unsqueeze",)),
    "reducemean-13": OldOperator(
        13, "y = ReduceMean <axes = [-1], keepdims = 1> (x)", "2,3,4", ("ReduceMean",)
    ),
    "reducel2-7": OldOperator(7, "y = ReduceL2 <axes = [1, 2]> (x)", "2,3,4", ("ReduceL2",)),
    "reducemax-11-all": OldOperator(
        11, "t = ReduceMax <keepdims = 0> (x) y = Sub (x, t)", "2,3", ("ReduceMax", "Sub")
    ),
    "roialign-10": OldOperator(
        10,
        "y = RoiAlign <output_height = 2, output_width = 2> (x, r, i)",
        "1,2,6,6",
        ("RoiAlign",),
        "float[1,4] r = {0.5, 0.5, 4, 5}, int64[1] i = {0}",
    ),
    "gridsample-16": OldOperator(
        16,
        'y = GridSample <mode = "bilinear"> (x, g)',
        "1,2,4,4",
        ("GridSample",),
        "float[1,2,2,2] g = {-0.5, -0.5, 0.2, 0.1, 0.9, -0.9, 0, 0.4}",
    ),
    "groupnorm-18": OldOperator(
        18,
        "y = GroupNormalization <num_groups = 2> (x, s, b)",
        "2,4,3,3",
        ("GroupNormalization",),
        "float[2] s = {1.5, -2}, float[2] b = {0.5, 1}",
    ),
    "maxpool-7": OldOperator(
        7, "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", "1,2,5,5", ("MaxPool",)
    ),
    "averagepool-10": OldOperator(
        10,
        "y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)",
        "1,2,6,6",
        ("AveragePool",),
    ),
    "gemm-7": OldOperator(
        7,
        "y = Gemm <transB = 1> (x, w, c)",
        "2,3",
        ("Gemm",),
        "float[2,3] w = {1, 2, 3, 4, 5, 6}, float[2] c = {1, -1}",
    ),
}
