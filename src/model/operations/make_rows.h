// Runs a costly operation, or reads its output rows from an earlier forward that stored them (model/row_values.h). Hands computed rows to the
// forward's RowSink, if it has one.
//   make_rows(ctx, {&o.buffer, &log_sum.buffer}, [&] { launch_attention(ctx, o, log_sum); });
#pragma once
#include "model/context.h"

namespace lockstep {

// make_rows where the forward has a RowSink or a RowSource.
void make_or_read(Context& ctx, std::initializer_list<const Buffer*> outputs, const std::function<void()>& launch, const View& slot_of);

// launch() fills `outputs`, new f32 buffers with the batch's rows, or with expert slots (`slot_of`, i32 [T, k]). It is not called if a RowSource has
// them.
template <class F>
void make_rows(Context& ctx, std::initializer_list<const Buffer*> outputs, const F& launch, const View& slot_of = {}) {
  const ForwardOptions& options = ctx.options();
  if (options.row_values == RowValues::operations && (options.row_sink || options.row_source)) make_or_read(ctx, outputs, launch, slot_of);
  else launch();
}

}  // namespace lockstep
