#!/bin/bash
VERSION=11.8
TORCH=2.0.1
pip install torch==$TORCH --index-url https://download.pytorch.org/whl/cu${VERSION//./}
LABEL=cu$(echo "$VERSION" | sed 's/\.//g')
pip install torch_scatter==latest+$LABEL -f https://data.pyg.org/whl/torch-${TORCH%.*}.0+$LABEL.html
SHORT=$(echo $VERSION | tr -d .)
uv pip install "torch_sparse" -f https://data.pyg.org/whl/torch-2.0.0+cu${SHORT:0:3}.html
pip-sync requirements.txt
