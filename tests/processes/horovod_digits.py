"""A script in the form of Horovod's example for MNIST, on the digits of scikit-learn."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--fp16-allreduce", action="store_true")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
labels = torch.tensor(labels)
train = TensorDataset(images[:1500], labels[:1500])
test = TensorDataset(images[1500:], labels[1500:])
train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train, batch_size=32, sampler=train_sampler)
test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
test_loader = DataLoader(test, batch_size=100, sampler=test_sampler)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 10, kernel_size=3)
        self.fc1 = nn.Linear(90, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv(x), 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


model = Net()
optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression
)

for epoch in range(args.epochs):
    model.train()
    train_sampler.set_epoch(epoch)
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()

model.eval()
correct = 0.0
for data, target in test_loader:
    correct += (model(data).argmax(1) == target).float().sum().item()
accuracy = hvd.allreduce(torch.tensor(correct / len(test_sampler)), name="avg_accuracy").item()
weights = hvd.allgather(torch.cat([each.detach().flatten() for each in model.parameters()])[None])
if hvd.rank() == 0:
    print(f"ranks {hvd.size()} equal {bool((weights == weights[0]).all())} accuracy {accuracy:.2f}")
