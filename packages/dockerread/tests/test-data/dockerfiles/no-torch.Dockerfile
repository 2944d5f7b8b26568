FROM ubuntu:22.04
RUN apt update && apt install -y python3-pip curl
RUN pip3 install numpy pandas
CMD bash
