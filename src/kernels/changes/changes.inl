// Implementation of changes.h: scattered stores, which wait for memory alone. So the lines are asked for ahead, and threads share the list; wider
// vectors would add nothing.
namespace lockstep {

template <class Element, class As>
static void set_elements_as(const SetElements& op, ThreadPool& pool, Element* to, const As& as) {
  constexpr std::int64_t kBlock = 4096, kAhead = 32;
  const std::int64_t n = op.offset.size();
  const std::int32_t *offset = ints(op.offset), *bits = ints(op.bits);
  pool.run((n + kBlock - 1) / kBlock, [&](std::int64_t block) {
    const std::int64_t end = std::min(n, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(to + offset[i + kAhead], 1);
      to[offset[i]] = as(static_cast<std::uint32_t>(bits[i]));
    }
  });
}

template <class V>
void set_elements(const SetElements& op, ThreadPool& pool) {
  if (op.to.dtype == DType::u8)
    return set_elements_as(op, pool, device_pointer<std::uint8_t>(op.to), [](std::uint32_t bits) { return static_cast<std::uint8_t>(bits); });
  const auto half = [](std::uint32_t bits) { return Bf16{static_cast<std::uint16_t>(bits)}; };
  if constexpr (std::is_same_v<typename V::Elem, typename V::Half>) {  // traced: new inputs, as an upload makes them
    const bool bf16 = op.to.dtype == DType::bf16;
    set_elements_as(op, pool, elements<V>(op.to), [&](std::uint32_t bits) { return element<typename V::Elem>(bf16 ? widen(half(bits)) : bits_float(bits)); });
  } else if (op.to.dtype == DType::bf16) {
    set_elements_as(op, pool, device_pointer<Bf16>(op.to), half);
  } else {
    set_elements_as(op, pool, device_pointer<std::uint32_t>(op.to), [](std::uint32_t bits) { return bits; });
  }
}

LOCKSTEP_INSTANTIATE(set_elements, SetElements)

}  // namespace lockstep
