#include "model/operations/make_rows.h"

#include <numeric>

#include "kernels/launch.h"

namespace lockstep {

namespace {
// Each row's slots side by side: [T, k * columns].
Buffer slots_by_row(Context& ctx, const View& slots, const View& slot_of) {
  Buffer by_row = ctx.allocate(DType::f32, slot_of.rows, slot_of.cols * slots.cols);
  ctx.launch(&KernelTable::gather_rows, GatherRows{by_row.view().reshape(slots.rows, slots.cols), slots, slot_of.reshape(slots.rows, 1)});
  return by_row;
}

void read_slots(Context& ctx, std::int64_t value, const View& slots, const View& slot_of) {
  std::vector<std::int32_t> ascending(static_cast<std::size_t>(slots.rows));
  std::iota(ascending.begin(), ascending.end(), 0);
  const Buffer numbers = ctx.backend().device().upload(ascending, slots.rows, 1, MemoryCategory::activations), place = ctx.allocate(DType::i32, slots.rows, 1),
               by_row = ctx.allocate(DType::f32, slot_of.rows, slot_of.cols * slots.cols);
  const View row = numbers.view().row_range(0, slot_of.rows), number = numbers.view().reshape(slot_of.rows, slot_of.cols);
  ctx.launch(&KernelTable::slot_source, SlotSource{place.view(), slot_of, row, number});
  ctx.options().row_source->read(value, by_row.view());
  ctx.launch(&KernelTable::gather_rows, GatherRows{slots, by_row.view().reshape(slots.rows, slots.cols), place.view()});
}
}  // namespace

void make_or_read(Context& ctx, std::initializer_list<const Buffer*> outputs, const std::function<void()>& launch, const View& slot_of) {
  RowSource* source = ctx.options().row_source;
  const bool computes = !source || source->recomputes();
  if (computes) launch();
  for (const Buffer* y : outputs) {
    const std::int64_t value = ctx.next_row_value()++;
    if (!computes) {
      if (slot_of) read_slots(ctx, value, y->view(), slot_of);
      else source->read(value, y->view());
      continue;
    }
    const Buffer by_row = slot_of ? slots_by_row(ctx, y->view(), slot_of) : *y;
    if (source) source->compare(value, by_row.view());
    else ctx.options().row_sink->output(value, by_row.view(), by_row);
  }
}

}  // namespace lockstep
