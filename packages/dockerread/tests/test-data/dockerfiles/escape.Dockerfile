# escape=`
FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime
RUN apt-get update && `
    apt-get install -y tmux
COPY evaluate.py `
     /opt/eval/
