// Fills the table of one instruction set. Included last by isa_*.cc.
#pragma once

Isa make_table(CpuIsa isa, const char* name, const char* numerics) {
  Isa table;
  table.isa = isa;
  table.name = name;
  table.numerics = numerics;
  table.f32 = make_product<DotF32, 1>();
  table.bf16 = make_product<DotBf16, 2>();
  table.f16 = make_product<DotF16, 2>();
  table.i8 = make_product<DotI8, 4>();
  make_int4_products<Int4Kind::kOffset>(table.i4[0]);
  make_int4_products<Int4Kind::kZeroPoints>(table.i4[1]);
  make_int4_products<Int4Kind::kE2m1>(table.i4[2]);
  make_int4_products<Int4Kind::kNonUniform>(table.i4[3]);
  table.rms_norm = rms_norm;
  table.to_bf16 = to_bf16;
  table.to_i8 = to_i8;
  table.swiglu = swiglu;
  table.add = add;
  table.rotate = rotate;
  table.attention[0] = attention<DType::kF32>;
  table.attention[1] = attention<DType::kBf16>;
  table.attention[2] = attention<DType::kF16>;
  table.attention[4] = attention<DType::kF8E4M3>;
  table.keep_bits = keep_bits;
  table.max = max_of;
  table.argmax = argmax;
  table.noisy_argmax = noisy_argmax;
  table.exp_weights = exp_weights;
  return table;
}
