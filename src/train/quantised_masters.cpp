#include "train/quantised_masters.h"

#include <algorithm>

#include "model/low_bit_weights.h"

namespace lockstep {

namespace {
constexpr std::int64_t kPanelsOfATask = 16;
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;  // of masters, copied to the host

// Encodes `panels` panels of a parameter, which begin a scale: `together` after `together`, each run of them a matrix of its own.
void encode(const std::vector<float>& values, const Parameter& p, const Profile& profile, std::int64_t panels, std::int64_t together, Backend& backend,
            std::vector<std::uint8_t>& bytes) {
  const std::int64_t width = 16 * p.inputs, tasks = (together + kPanelsOfATask - 1) / kPanelsOfATask, all = panels / together * tasks;
  const LowBitShape shape{16 * together, p.inputs, low_bit_format_of(weight_bits(p, profile))};
  bytes.resize(static_cast<std::size_t>(panels * shape.panel_bytes()));
  const auto quantise = [&](std::int64_t i) {
    const std::int64_t first = i / tasks * together, panel = i % tasks * kPanelsOfATask;
    encode_panels(values.data() + first * width, shape, bytes.data() + first * shape.panel_bytes(), panel, std::min(together, panel + kPanelsOfATask));
  };
  // On a deferred device the threads may be at work for queued kernels.
  if (!backend.stream().deferred()) backend.device().threads().run(all, quantise);
  else
    for (std::int64_t i = 0; i < all; ++i) quantise(i);
}
}  // namespace

void quantise_masters(Backend& backend, const Parameter& p, const Profile& profile, const View& master, const View& copy) {
  if (backend.device().counting() || master.size() == 0) return;
  const std::int64_t width = 16 * p.inputs, panels = master.size() / width;
  const View from = master.reshape(panels, width), to = copy.reshape(panels, copy.size() / panels);
  // Panels of several items are those of one matrix with more outputs, unless the last scale of an item has fewer outputs than others.
  const bool one_matrix = scales_run_on(p, profile);
  const std::int64_t step = one_matrix ? kPanelsOfATask : (p.outputs + 15) / 16;
  const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce / width / step) * step;
  std::vector<std::uint8_t> bytes;
  for (std::int64_t first = 0; first < panels; first += at_once) {
    const std::int64_t count = std::min(at_once, panels - first);
    encode(backend.stream().read(from.row_range(first, count)).get(), p, profile, count, one_matrix ? count : step, backend, bytes);
    backend.stream().write(to.row_range(first, count), bytes);
  }
}

}  // namespace lockstep
