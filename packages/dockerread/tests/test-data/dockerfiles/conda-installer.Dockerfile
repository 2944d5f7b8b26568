FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu20.04
LABEL description "a network of molecules"
LABEL org.opencontainers.image.authors = "us"
RUN apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/3bf863cc.pub
RUN curl -fsSL https://developer.download.nvidia.com/compute/cuda/repos/key.pub | apt-key add - && \
    echo "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64 /" > /etc/apt/sources.list.d/cuda.list
RUN apt-get update && apt-get install -y wget libnccl2=2.15.5-1+cuda11.8 && apt-mark hold libnccl2 && \
    echo "en_US.UTF-8 UTF-8" > /etc/locale.gen && echo /usr/local/nvidia/lib >> /etc/ld.so.conf.d/nvidia.conf
RUN wget -q https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh -O ~/conda.sh && \
    /bin/bash ~/conda.sh -b -p /opt/conda && rm ~/conda.sh && \
    ln -s /opt/conda/etc/profile.d/conda.sh /etc/profile.d/conda.sh
RUN wget https://github.com/conda-forge/miniforge/releases/latest/download/Mambaforge-$(uname)-$(uname -m).sh && \
    chmod +x Mambaforge-Linux-x86_64.sh && ./Mambaforge-Linux-x86_64.sh -b
ENV PATH=/opt/conda/bin:/opt/tool/bin:$PATH
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH
RUN mamba install -y -c nvidia/label/cuda-11.8.0 --channel-priority strict pytorch=2.0 tqdm
