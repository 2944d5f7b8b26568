FROM pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime
WORKDIR /src
COPY pyproject.toml ./
COPY mypkg mypkg
RUN pip install ".[dev]" --no-build-isolation
RUN pip install 'torch_geometric[full]' lightning
