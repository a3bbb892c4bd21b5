"""lstm_scan and gru_scan: one layer and direction of torch.nn.LSTM and torch.nn.GRU, the input's part of the gates computed before."""
import torch


def record(r):
    torch.manual_seed(11)
    for kind, parts in (("lstm", 4), ("gru", 3)):
        for steps, batch, inputs, width, bias, reverse in ((5, 1, 4, 6, True, False), (3, 2, 4, 6, True, True), (4, 3, 2, 9, False, False), (1, 1, 3, 1, True, False), (2, 1, 3, 17, False, True)):
            layer = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(inputs, width, bias=bias)
            x, h0, c0 = torch.randn(steps, batch, inputs), torch.randn(batch, width), torch.randn(batch, width)
            gates = x @ layer.weight_ih_l0.T + (layer.bias_ih_l0 if bias else 0)
            seen = x.flip(0) if reverse else x
            if kind == "lstm":
                out, (h, c) = layer(seen, (h0[None], c0[None]))
                first, last = [h0, c0], [h[0], c[0]]
            else:
                out, h = layer(seen, h0[None])
                first, last = [h0], [h[0]]
            out = out.flip(0) if reverse else out
            r.sample(f"{kind}_scan", [gates, *first, layer.weight_hh_l0, layer.bias_hh_l0 if bias else None], (out, *last), tolerance=1e-5, reverse=reverse)
        bad = [torch.zeros(2, 1, parts * 4), torch.zeros(1, 4)] + ([torch.zeros(1, 4)] if kind == "lstm" else []) + [torch.zeros(parts * 4, 3), None]
        r.sample(f"{kind}_scan", bad, error="invalid argument")
