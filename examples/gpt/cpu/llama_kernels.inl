// Kernels that Llama needs in addition to GPT-2's: a part of kernels.inl, inside its namespace.

template <class T>
void rms_norm_forward(const LayerNormForward<T>& a, Range rows) {
  using Acc = accumulate_t<T>;
  const Acc count = static_cast<Acc>(a.channels);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* in = a.in + r * a.channels;
    T* __restrict out = a.out + r * a.channels;
    const Acc square =
        sum<Acc>(a.channels, [&](int64_t c) { return load(in[c]) * load(in[c]); }) / count;
    const Acc inverse = 1 / square_root(square + static_cast<Acc>(a.epsilon));
    for (int64_t c = 0; c < a.channels; ++c)
      store(load(in[c]) * inverse * load(a.weight[c]), out[c]);
    a.inverse_deviation[r] = inverse;
  }
}

template <class T>
void rms_norm_backward(const LayerNormBackward<T>& a, Range rows) {
  using Acc = accumulate_t<T>;
  const Acc count = static_cast<Acc>(a.channels);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* dout = a.dout + r * a.channels;
    const T* in = a.in + r * a.channels;
    T* din = a.din + r * a.channels;
    const Acc inverse = a.inverse_deviation[r];
    const Acc slope = sum<Acc>(a.channels,
                               [&](int64_t c) {
                                 return load(dout[c]) * load(a.weight[c]) * (load(in[c]) * inverse);
                               }) /
                      count;
    for (int64_t c = 0; c < a.channels; ++c) {
      const Acc normal = load(in[c]) * inverse;
      const Acc change = (load(dout[c]) * load(a.weight[c]) - normal * slope) * inverse;
      store(load(din[c]) + change, din[c]);
    }
  }
}

template <class T>
void rms_norm_parameters(const LayerNormBackward<T>& a, Range columns) {
  using Acc = accumulate_t<T>;
  for (int64_t first = columns.begin; first < columns.end; first += column_block) {
    const int64_t count = columns.end - first < column_block ? columns.end - first : column_block;
    Acc weight[column_block] = {};
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* dout = a.dout + r * a.channels + first;
      const T* in = a.in + r * a.channels + first;
      const Acc inverse = a.inverse_deviation[r];
      for (int64_t c = 0; c < count; ++c) weight[c] += load(dout[c]) * (load(in[c]) * inverse);
    }
    add_columns(weight, a.dweight + first, count);
  }
}

template <class T>
void rotate(const Rotation<T>& a, Range rows) {
  using Acc = accumulate_t<T>;
  const int64_t half = a.channels / 2;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const Acc* cosine = a.cosines + r % a.sequence * half;
    const Acc* sine = a.sines + r % a.sequence * half;
    for (int64_t head = 0; head < a.heads; ++head) {
      T* __restrict first = a.data + r * a.distance + head * a.channels;
      T* __restrict second = first + half;
      for (int64_t i = 0; i < half; ++i) {
        const Acc x = load(first[i]), y = load(second[i]), s = a.direction * sine[i];
        store(x * cosine[i] - y * s, first[i]);
        store(y * cosine[i] + x * s, second[i]);
      }
    }
  }
}

template <class T>
void swiglu_forward(const SwigluForward<T>& a, Range elements) {
  using Acc = accumulate_t<T>;
  T* __restrict out = a.out;
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const Acc x = load(a.gate[i]);
    store(x * (1 / (1 + exponential(-x))) * load(a.up[i]), out[i]);
  }
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& a, Range elements) {
  using Acc = accumulate_t<T>;
  T* __restrict gradient = a.gradient;
  T* __restrict dgate = a.dgate;
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const Acc x = load(a.gate[i]), d = load(gradient[i]);
    const Acc s = 1 / (1 + exponential(-x));
    store(d * load(a.up[i]) * (s + x * s * (1 - s)), dgate[i]);
    store(d * (x * s), gradient[i]);
  }
}
