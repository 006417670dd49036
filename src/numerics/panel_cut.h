// Cuts a part of a weight in few bits out of its panels (numerics/quantised.h, numerics/low_bit.h): numbers and scales as they are, so a part computes with
// those of the whole weight, also where no quantiser would make them of the numbers that they stand for. Knows no model. Pure functions, any thread.
//   cut_panels(bytes, whole, 128, 0, part, to);   // outputs [128, 128 + part.outputs), inputs [0, part.inputs)
#pragma once
#include "numerics/low_bit.h"

namespace lockstep {

// `to` gets part.bytes() bytes. Padding of the part is what a quantiser makes of zeros. Error internal where the part's first output or input stands inside a
// group that shares a scale.
void cut_panels(const std::uint8_t* whole, const LowBitShape& from, std::int64_t output, std::int64_t input, const LowBitShape& part, std::uint8_t* to);
void cut_panels(const std::uint8_t* whole, const QuantisedShape& from, std::int64_t output, std::int64_t input, const QuantisedShape& part, std::uint8_t* to);

}  // namespace lockstep
