"""Thousands of ordinary command lines: options and values as the public documentation of programs shows them."""

from __future__ import annotations

import random
import uuid

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3-70B", "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen2.5-Coder-32B-Instruct-AWQ", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "TheBloke/Llama-2-13B-chat-GGUF", "llama-2-13b-chat.Q4_K_M.gguf", "google/gemma-3-27b-it", "bert-base-uncased",
    "stabilityai/stable-diffusion-xl-base-1.0", "openai/whisper-large-v3", "facebook/opt-125m", "gpt2-medium",
    "nvidia/Llama-3_1-Nemotron-51B-Instruct", "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "tiiuae/falcon-180B-chat",
    "microsoft/Phi-3-mini-128k-instruct", "sentence-transformers/all-MiniLM-L6-v2", "google/vit-base-patch16-224-in21k",
    "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "timm/eva02_large_patch14_448.mim_m38m_ft_in22k_in1k", "t5-11b",
    "NousResearch/Hermes-2-Pro-Llama-3-8B", "HuggingFaceH4/zephyr-7b-beta", "EleutherAI/gpt-neox-20b",
)  # fmt: skip
FILES = (
    "/data/imagenet/train", "/mnt/nfs/users/jane/runs/2024-06-01_12-30-45", "s3://my-bucket/datasets/c4/en/",
    "gs://t5-data/pretrained_models/small", "configs/llama3/8B_full.yaml", "ds_config_zero3.json", "./output_dir",
    "checkpoints/step_00012000/model-00001-of-00004.safetensors", "/scratch/$SLURM_JOB_ID/cache", "runs/exp-0042",
    "lightning_logs/version_3/checkpoints/epoch=9-step=12500.ckpt", "outputs/2024-05-17/10-22-31/.hydra/config.yaml",
    "wandb/run-20240617_101502-3n8q2v7k/files", "~/.cache/huggingface/hub/models--gpt2/snapshots/607a30d783dfa663caf3",
    "/opt/conda/envs/py310/lib/python3.10/site-packages", "nvidia_cublas_cu12-12.1.3.1-py3-none-manylinux1_x86_64.whl",
    "data/shards/train-{000000..001023}.tar", "file:///tmp/rdzv_store", "hdfs://namenode:8020/user/jane/part-00000",
    "ResNet50_ImageNet1K_V2_epoch90_top1_80p86.pth", "BEVFormer_R101_DCN_24ep_nuScenes_v1_0.pth",
    "EfficientNetV2S_384x384_AdamW_lr1e3_bs1024_seed42", "ViTL16_MAE_IN21K_FT_IN1K_512_ema9998",
    "swinv2_base_window12to24_192to384_22kto1k_ft", "cifar10_WRN2810_CutMix_SAM_rho05_seed3",
)  # fmt: skip
NUMBERS = (
    "1", "2", "8", "16", "64", "128", "512", "1024", "4096", "32768", "1e-3", "3e-5", "5e-4", "0.1", "0.95", "0.999",
    "42", "1337", "100000", "2e5", "0", "-1",
)  # fmt: skip
HASHES = (
    "da39a3ee5e6b4b0d3255bfef95601890afd80709", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "5d41402abc4b2a76b9719d911017c592", "550e8400-e29b-41d4-a716-446655440000", "0f4c9a1", "7b3f2d9e1c5a",
    "GPU-5ca1ab1e-0000-4000-8000-00000000cafe", "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "0x7f3a5c0012ab",
)  # fmt: skip
IMAGES = (
    "nvcr.io/nvidia/pytorch:24.05-py3", "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", "vllm/vllm-openai:v0.6.3",
    "ghcr.io/huggingface/text-generation-inference:2.0.4", "pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime",
    "repo.example.org:5000/team/train@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
)  # fmt: skip
HOSTS = (
    "node017", "10.0.3.14", "gpu-a100-0042.cluster.local", "localhost:29500", "tcp://10.0.0.1:23456",
    "http://localhost:8000/v1/chat/completions", "https://huggingface.co/datasets/allenai/c4/resolve/main/en.json.gz",
    "ray://head:10001", "redis://cache:6379/0", "grpc://triton:8001", "jane@login.cluster.edu:/scratch/jane",
    "https://storage.googleapis.com/bucket/o/file.tar?generation=1712345678901234&alt=media",
)  # fmt: skip
WORDS = (
    "bf16", "fp16", "auto", "cosine", "adamw_torch_fused", "flash_attention_2", "nccl", "gloo", "spawn", "train", "val",
    "FullShard", "TRANSFORMER_BASED_WRAP", "LlamaDecoderLayer", "BACKWARD_PRE", "SHARDED_STATE_DICT", "steps", "epoch",
    "my-experiment-2024-06", "sft_llama3_8b_lora_r16_alpha32", "ResNet50CheckpointAfter90Epochs", "user@example.org",
    "Qwen2VLForConditionalGeneration", "DistributedDataParallelTraining", "NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0,1",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "OMP_NUM_THREADS=8", "TOKENIZERS_PARALLELISM=false",
    "HF_HOME=/data/hf", "model.optimizer.lr=1e-4", "+trainer.max_epochs=90", "data.train.batch_size=256", "3n8q2v7k",
    "torch.distributed.elastic", "megatron.core.transformer", "A100-SXM4-80GB", "H100_80GB_HBM3_x8_NVL72",
)  # fmt: skip
OPTIONS = (
    "--nproc_per_node", "--nnodes", "--rdzv_backend", "--rdzv_endpoint", "--master_port", "--model", "--tokenizer",
    "--tokenizer-mode", "--max-model-len", "--max-num-batched-tokens", "--max_new_tokens", "--max_source_length",
    "--tensor-parallel-size", "--gpu-memory-utilization", "--served-model-name", "--quantization", "--dtype", "--seed",
    "--per_device_train_batch_size", "--gradient_accumulation_steps", "--learning_rate", "--lr_scheduler_type",
    "--num_train_epochs", "--output_dir", "--resume_from_checkpoint", "--deepspeed", "--fsdp", "--bf16", "--report_to",
    "--run_name", "--logging_steps", "--save_total_limit", "--dataset_name", "--dataset_config_name", "--text_column",
    "--image_column", "--caption_column", "--key_frames", "--pad_token_id", "--num_key_value_heads", "--data_path",
    "--token_classification_task", "--label_names", "--hub_model_id", "--trust-remote-code", "--revision", "--n_gpu",
    "--use-flash-attn", "--sequence-parallel", "--num-layers", "--hidden-size", "--num-attention-heads", "--fp8-format",
    "--micro-batch-size", "--global-batch-size", "--save-interval", "--split", "--vocab-file", "--merge-file",
    "--tokenizer-type", "--distributed-backend", "--workers", "--prefetch-factor", "--pin-memory", "--print-freq",
    "--world-size", "--rank", "--dist-url", "--arch", "--auto-augment", "--model-ema", "--opt", "--weight-decay",
    "--warmup-epochs", "--config", "--config-name", "--ckpt_path", "--accelerator", "--strategy", "--precision",
    "--n-gpu-layers", "--ctx-size", "--threads", "--host", "--port", "--parallel", "--keep_last", "--metric_key",
    "--chat-template", "--response-role", "--enable-prefix-caching", "--max-logprobs", "--author", "--passes",
    "--signature-def", "--session-timeout", "--credential-provider", "--key-padding", "--auth-mode", "--secretary",
)  # fmt: skip
PROGRAMS = (
    "python train.py", "python3 -u main.py", "python -m torch.distributed.run", "torchrun train.py", "deepspeed run.py",
    "accelerate launch train.py", "vllm serve", "python -m vllm.entrypoints.openai.api_server", "llama-server",
    "text-generation-launcher", "tritonserver", "ray start", "srun --gres=gpu:8 python train.py", "mpirun -np 8 python",
    "docker run --rm --gpus all", "apptainer exec --nv", "jupyter lab", "nsys profile -o", "ncu --set full", "lm_eval",
    "axolotl train", "tune run lora_finetune_single_device", "tensorboard --logdir", "mlflow server", "wandb agent",
    "rsync -a", "aws s3 sync", "gsutil -m cp", "git clone", "curl -sSL", "wget -c", "kubectl apply -f", "sbatch",
    "nccl-tests/build/all_reduce_perf -b 8 -e 8G", "bazel run //trainer:main --", "uv run train.py",
)  # fmt: skip


def ordinary_commands(count: int, seed: int = 1) -> list[list[str]]:
    """Command lines without a secret, each of a program, up to nine options with values, and up to three more words."""
    draw = random.Random(seed)
    values = (MODELS, FILES, NUMBERS, HASHES, IMAGES, HOSTS, WORDS)
    commands = []
    for _ in range(count):
        words = draw.choice(PROGRAMS).split()
        for option in draw.sample(OPTIONS, draw.randrange(1, 10)):
            value = draw.choice(draw.choice(values))
            words += [f"{option}={value}"] if draw.random() < 0.4 else [option, value]
        words += [draw.choice(draw.choice(values)) for _ in range(draw.randrange(4))]
        commands.append(words)
    return commands


_NAMED = """
    docker run -p 8080:80 -u 1000:1000 -w /app repo/img@sha256:HEX64
    python t.py --run-id UUID --resume ckpt_HEX40.pt
    git checkout HEX40
    wandb agent team/proj/BASE8
    python t.py --run_name=exp-BASE12-HEX7 -k HEX12
    srun -p a100_80gb -w node017 -A proj python
    mlflow run --run-id HEX32
    x sha256-HEX64 model-HEX40 20240617_101502-BASE8
    kubectl exec train-BASE10-BASE5 -- python
    ssh -p 2222 me@host
    x --key col_12 --auth-mode token --token 4k
    torchrun --rdzv_id=BASE16
    aws s3 cp s3://b/HEX32/UUID.parquet .
    wget https://huggingface.co/a/b/resolve/HEX40/model.safetensors
    python t.py epoch=9-step=12500-val_loss=0.12.ckpt
    nvidia-smi -i GPU-UUID
"""


def commands_with_names(count: int, seed: int = 1) -> list[list[str]]:
    """Command lines with random UUIDs, digests, hashes, and names of runs and pods."""
    draw = random.Random(seed)

    def made(word: str) -> str:
        for name, alphabet in (("HEX", "0123456789abcdef"), ("BASE", "0123456789abcdefghijklmnopqrstuvwxyz")):
            for length in (64, 40, 32, 16, 12, 10, 8, 7, 5):
                word = word.replace(f"{name}{length}", "".join(draw.choices(alphabet, k=length)))
        return word.replace("UUID", str(uuid.UUID(int=draw.getrandbits(128))))

    rows = _NAMED.strip().splitlines()
    return [[made(word) for word in draw.choice(rows).split()] for _ in range(count)]
