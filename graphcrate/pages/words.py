"""The catalogue's words in English and Chinese; commands are the same in both."""

#: key → English, Chinese
_WORDS: dict[str, tuple[str, str]] = {
    "title": ("Images for graph learning", "图学习容器镜像"),
    "lead": (
        "Every image is built from a lock, checked without a GPU, and tested by a training run inside.",
        "每个镜像都按锁文件构建，无需 GPU 即可检查，并在镜像内通过一次训练测试。",
    ),
    "search": ("search", "搜索"),
    "search_hint": ("v100, driver 535, pyxis, ogb, torch 2.7 …", "v100、驱动 535、pyxis、ogb、torch 2.7……"),
    "map": ("Which GPU runs which CUDA version?", "哪种 GPU 能运行哪个 CUDA 版本？"),
    "map_hint": ("A cell leads to its image.", "点击格子查看对应镜像。"),
    "native": ("runs", "可以运行"),
    "jit": ("runs, slow first start: the driver compiles PTX", "可以运行，首次启动较慢：由驱动编译 PTX"),
    "unknown": ("not known", "未知"),
    "rejected": ("does not run", "不能运行"),
    "driver": ("NVIDIA driver from", "NVIDIA 驱动最低版本"),
    "images": ("All images", "全部镜像"),
    "locked": ("locked", "已锁定"),
    "not_locked": ("resolved when it is built", "构建时解析版本"),
    "measured": ("measured", "实测"),
    "packages": ("Packages", "软件包"),
    "package": ("package", "软件包"),
    "version": ("version", "版本"),
    "download": ("download", "下载大小"),
    "obtain": ("Get it", "获取镜像"),
    "run": ("Run it", "运行"),
    "gpus": ("GPUs", "GPU"),
    "none": ("none: it computes on the CPU", "无：在 CPU 上计算"),
    "unavailable": ("not available", "不提供"),
    "instead": ("instead", "可改用"),
    "size": ("packed", "压缩后"),
    "tested_on": ("tested on", "测试设备"),
    "back": ("all images", "全部镜像"),
    "filter": ("filter", "筛选"),
    "here": ("Without any engine, where it was built", "在构建镜像的机器上直接运行，无需容器引擎"),
    "on_gpu_node": ("On a node with a GPU.", "在有 GPU 的节点上运行。"),
    "nothing": (
        'No image has it. WITH adds packages of your own: make image CUDA=12.1 WITH="lightning wandb"',
        '没有镜像包含它。可以用 WITH 添加软件包：make image CUDA=12.1 WITH="lightning wandb"',
    ),
    "elsewhere": (
        "Not by the locked candidate that is shown below, but by another:",
        "以下型号不能由下面列出的锁定方案运行，须用其他候选方案：",
    ),
    "no_code": ("has no code for", "不含以下 GPU 的代码："),
    "only_for": ("made for", "专为以下 GPU 构建："),
}
WORDS = {language: {key: words[at] for key, words in _WORDS.items()} for at, language in enumerate(("en", "zh"))}

CHINESE = {  #: of recipes of ours: what their descriptions say in English
    "torch": "CUDA 与 PyTorch",
    "pyg": "CUDA、PyTorch 与 PyTorch Geometric，用于训练图神经网络",
    "glt": "CUDA、PyTorch、PyTorch Geometric 与 GraphLearn-for-PyTorch，用于图神经网络的分布式训练",
}
