"""Work for PyTorch: a training loop and an inference loop with batches of varying length."""

import torch


def model(layers=2, width=128):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def train(net, steps=12, width=128):
    """The losses of a few steps, that fall."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        length = 16 + (step * 37) % 64
        torch.manual_seed(5)
        batch = torch.randn(8, length, width, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = (net(batch) - batch.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@torch.no_grad()
def infer(net, turns=8, width=128):
    """The same answers for the same questions, in streams of their own."""
    net.eval()
    streams = [torch.cuda.Stream() for _ in range(2)]
    answers = []
    for turn in range(turns):
        stream = streams[turn % 2]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.manual_seed(3)
            batch = torch.randn(4, 32, width, device="cuda")
            answer = net(batch)
            answers.append(float(answer.float().sum()))
        torch.cuda.current_stream().wait_stream(stream)
    return answers
