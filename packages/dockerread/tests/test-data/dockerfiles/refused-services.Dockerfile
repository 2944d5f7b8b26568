FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
RUN apt-get update && apt-get install -y openssh-server supervisor && mkdir /var/run/sshd
RUN echo 'root:secret' | chpasswd
RUN service ssh start
RUN wget https://example.org/weights.pt -O /opt/weights.pt
RUN curl -sSL https://example.org/install.sh | bash
CMD ["/usr/sbin/sshd", "-D"]
