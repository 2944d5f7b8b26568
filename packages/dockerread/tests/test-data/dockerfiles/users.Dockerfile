FROM pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime
ARG USERNAME=dev
ARG UID=1000
RUN groupadd --gid $UID $USERNAME && useradd --uid $UID --gid $UID -m $USERNAME \
 && apt-get update && apt-get install -y sudo \
 && echo $USERNAME ALL=\(root\) NOPASSWD:ALL > /etc/sudoers.d/$USERNAME
RUN pip install torch-scatter==2.0.9 torch-sparse==0.6.15 -f https://data.pyg.org/whl/torch-1.12.1+cu113.html
RUN pip install torch-geometric==2.1.0
RUN mkdir -p /data /results && chmod 777 /results && chown -R $USERNAME /data
USER $USERNAME
WORKDIR /home/$USERNAME
