#include "train/quantised_masters.h"

#include <algorithm>

#include "model/low_bit_weights.h"

namespace lockstep {

namespace {
constexpr std::int64_t kPanelsOfATask = 16;
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;  // of masters, copied to the host
}  // namespace

void quantise_masters(Backend& backend, const Parameter& p, const Profile& profile, const View& master, const View& copy) {
  if (backend.device().counting() || master.size() == 0) return;
  const std::int64_t width = 16 * p.inputs, panels = master.size() / width;
  const View from = master.reshape(panels, width), to = copy.reshape(panels, copy.size() / panels);
  const std::int64_t at_once = std::max<std::int64_t>(kPanelsOfATask, kElementsAtOnce / width / kPanelsOfATask * kPanelsOfATask);
  for (std::int64_t first = 0; first < panels; first += at_once) {
    const std::int64_t count = std::min(at_once, panels - first);
    const std::vector<float> values = backend.stream().read(from.row_range(first, count)).get();
    // Each output has scales of its own, so panels of several items are those of one matrix with more outputs.
    const LowBitShape shape{16 * count, p.inputs, low_bit_format_of(weight_bits(p, profile))};
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.bytes()));
    const std::int64_t tasks = (count + kPanelsOfATask - 1) / kPanelsOfATask;
    const auto quantise = [&](std::int64_t t) {
      encode_panels(values.data(), shape, bytes.data(), t * kPanelsOfATask, std::min(count, (t + 1) * kPanelsOfATask));
    };
    // On a deferred device the threads may be at work for queued kernels.
    if (!backend.stream().deferred()) backend.device().threads().run(tasks, quantise);
    else
      for (std::int64_t t = 0; t < tasks; ++t) quantise(t);
    backend.stream().write(to.row_range(first, count), bytes);
  }
}

}  // namespace lockstep
