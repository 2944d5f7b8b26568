FROM pytorch/pytorch:2.1.0-cuda11.8-cudnn8-devel
RUN apt-get update && apt-get install -y git cmake ninja-build
RUN git clone https://github.com/alibaba/graphlearn-for-pytorch.git /opt/glt \
 && cd /opt/glt && git checkout 0123456789abcdef0123456789abcdef01234567 && git submodule update --init \
 && pip install .
RUN git clone --depth 1 --branch v1.2 https://github.com/example/tool && cd tool && python setup.py install
RUN git clone https://github.com/example/data-tools.git
