FROM nvidia/cuda:12.1.1-cudnn8-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y openssh-server sudo vim tmux python3 python3-pip && mkdir -p /var/run/sshd
RUN echo 'root:root' | chpasswd && sed -i 's/#PermitRootLogin prohibit-password/PermitRootLogin yes/' /etc/ssh/sshd_config
RUN pip3 install torch==2.3.1 torch_geometric==2.5.3 jupyterlab
EXPOSE 22
CMD ["/usr/sbin/sshd", "-D"]
