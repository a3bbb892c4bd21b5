#include "xnnpack/quantized_cases.h"

#include <algorithm>

namespace dovetail {

std::string Expand(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = text.substr(i).starts_with("Q(") && i > 0 && text[i - 1] == ']';
    const size_t comma = starts ? text.find(',', i) : 0, end = starts ? text.find(')', i) : 0;
    if (starts) out += StrCat("{per_tensor scale=", text.substr(i + 2, comma - i - 2), " zero_point=", text.substr(comma + 1, end - comma - 1), "}");
    else out += text[i];
    if (starts) i = end;
  }
  return out;
}

std::string Constants(const Weighted& c) {
  std::string text = StrCat("constant @w : i8[", c.weight, "]{per_channel axis=", c.axis, "} = external\nconstant @s : f32[", c.channels, "] = external\n");
  if (c.bias) text += StrCat("constant @b : f32[", c.channels, "] = external\n");
  return text;
}

std::string Reads(const Weighted& c) {
  std::string text = StrCat(" %w = const @w : i8[", c.weight, "]{per_channel axis=", c.axis, "}\n %s = const @s : f32[", c.channels, "]\n");
  if (c.bias) text += StrCat(" %b = const @b : f32[", c.channels, "]\n");
  return text;
}

std::string Conv(std::string_view stride, std::string_view padding, std::string_view dilation, int groups, std::string_view output_padding) {
  const std::string_view none = stride.find(',') == std::string_view::npos ? "0" : "0,0";
  return StrCat(" {stride=[", stride, "], padding=[", padding, "], dilation=[", dilation, "], transposed=", output_padding.empty() ? "false" : "true",
                ", output_padding=[", output_padding.empty() ? none : output_padding, "], groups=", groups, "}");
}

std::string Static(std::string_view in, const Weighted& c, std::string_view result) {
  return Expand(StrCat(Constants(c), "graph @f(%x: ", in, ") {\n", Reads(c), " %y = ", c.op, " %x, _, _, %w, %s, ", c.bias ? "%b" : "_", c.attrs, " : ", result,
                       "\n return %y\n}"));
}

std::string Dynamic(const std::string& in, const std::string& rows, const Weighted& c) {
  const auto rank = [](const std::string& shape) { return 1 + std::count(shape.begin(), shape.end(), ','); };
  const std::string types = StrCat("i8[", in, "]{dynamic per_row}, f32[", rows, "], i32[", rows, "]");
  return StrCat(Constants(c), "graph @f(%x: f32[", in, "]) {\n", Reads(c), " %q, %r, %z = quantize_dynamic %x {num_nonbatch_dims=", rank(in) - rank(rows),
                "} : ", types, "\n %y = ", c.op, " %q, %r, %z, %w, %s, ", c.bias ? "%b" : "_", c.attrs, " : f32[", c.out, "]\n return %y\n}");
}

namespace {

const std::string kConvolution = "quantized_convolution";

struct Layer {
  std::string name, in;
  Weighted c;
};

// Each as a static and as a dynamic one.
std::vector<Layer> Convolutions() {
  return {
      {"plain", "s0,3,8,9", {kConvolution, "6,3,3,2", "s0,6,4,12", 6, Conv("2,1", "1,2", "1,1", 1)}},
      {"one_by_one", "s0,5,3,7", {kConvolution, "7,5,1,1", "s0,7,3,7", 7, Conv("1,1", "0,0", "1,1", 1)}},
      {"one_channel", "s0,1,7,5", {kConvolution, "3,1,3,3", "s0,3,7,5", 3, Conv("1,1", "1,1", "1,1", 1)}},
      {"no_bias", "s0,4,5,5", {kConvolution, "4,4,3,3", "s0,4,5,5", 4, Conv("1,1", "1,1", "1,1", 1), 0, false}},
      {"groups", "s0,4,8,9", {kConvolution, "6,2,3,3", "s0,6,8,9", 6, Conv("1,1", "2,2", "2,2", 2)}},
      {"depthwise", "s0,5,8,9", {kConvolution, "5,1,3,3", "s0,5,4,5", 5, Conv("2,2", "1,1", "1,1", 5)}},
      {"depthwise_twice", "s0,4,8,9", {kConvolution, "8,1,3,3", "s0,8,8,9", 8, Conv("1,1", "1,1", "1,1", 4)}},
      {"transposed", "s0,3,5,6", {kConvolution, "3,4,3,2", "s0,4,10,12", 4, Conv("2,2", "1,0", "1,1", 1, "1,0"), 1}},
      {"transposed_groups", "s0,4,5,6", {kConvolution, "4,3,3,2", "s0,6,10,12", 6, Conv("2,2", "1,0", "1,1", 2, "1,0"), 1, false}},
      {"one_dim", "1,3,s0+3", {kConvolution, "5,3,4", "1,5,s0", 5, Conv("1", "0", "1", 1)}},
      {"one_dim_batch", "s0,3,11", {kConvolution, "5,3,4", "s0,5,6", 5, Conv("2", "2", "1", 1)}},
      {"one_dim_depthwise", "1,6,s0+3", {kConvolution, "6,1,4", "1,6,s0", 6, Conv("1", "0", "1", 6)}},
  };
}

// Of one operand, of the types' scales and zero points, and of two.
std::string Unary(std::string_view op, std::string_view from, std::string_view to, std::string_view attrs = "") {
  return Expand(StrCat("graph @f(%x: i8[2,s0,5]Q(", from, ")) {\n %y = ", op, " %x", attrs, " : i8[2,s0,5]Q(", to, ")\n return %y\n}"));
}
std::string Binary(std::string_view op, std::string_view a, std::string_view b, std::string_view scale, std::string_view attrs = "") {
  return Expand(StrCat("graph @f(%x: i8[", a, "]Q(0.03,4), %z: i8[", b, "]Q(0.05,-7)) {\n %y = ", op, " %x, %z", attrs, " : i8[2,s0,5]Q(", scale,
                       ",2)\n return %y\n}"));
}

std::vector<Case> Linears() {
  const Weighted linear = {"quantized_linear", "7,33", "2,s0,7", 7, ""}, wide = {"quantized_linear", "65,129", "s0,65", 65, "", 0, false};
  const std::string_view in = "i8[2,s0,33]Q(0.05,3)";
  return {
      {"linear", Static(in, linear, "i8[2,s0,7]Q(0.3,-5)")},
      {"linear_no_bias", Static("i8[s0,129]Q(0.05,3)", wide, "i8[s0,65]Q(0.5,0)")},
      // More than 2^8 steps of the result to one of the product: in f32.
      {"linear_beyond_the_ratio", Static(in, linear, "i8[2,s0,7]Q(1e-07,0)")},
      {"linear_to_f32", Static(in, linear, "f32[2,s0,7]")},
      {"linear_of_f32", Static("f32[2,s0,33]", linear, "f32[2,s0,7]")},
      {"linear_relu", Expand(StrCat(Constants(linear), "graph @f(%x: ", in, ") {\n", Reads(linear),
                                    " %y = quantized_linear %x, _, _, %w, %s, %b : i8[2,s0,7]Q(0.2,-40)\n"
                                    " %r = relu %y : i8[2,s0,7]Q(0.2,-40)\n return %r\n}"))},
      {"linear_dynamic", Dynamic("2,s0,33", "2,s0", linear), false, 1e-3},
      {"linear_dynamic_no_bias", Dynamic("s0,129", "s0", wide), false, 1e-3},
      {"linear_dynamic_blocks",
       "constant @w : u8[7,32]{per_block size=32 bits=4} = external\nconstant @s : bf16[7,2] = external\nconstant @b : f32[7] = external\n"
       "graph @f(%x: f32[s0,64]) {\n %w = const @w : u8[7,32]{per_block size=32 bits=4}\n %s = const @s : bf16[7,2]\n %b = const @b : f32[7]\n"
       " %q, %r, %z = quantize_dynamic %x : i8[s0,64]{dynamic per_row}, f32[s0], i32[s0]\n"
       " %y = quantized_linear %q, %r, %z, %w, %s, %b : f32[s0,7]\n return %y\n}",
       false, 1e-3},
  };
}

// Sizes about those of kernels' tiles, up to 16 rows by 64 columns in steps of 64 of the inner size: with one row in the last tile, or one column.
std::vector<Case> Tiles() {
  std::vector<Case> all;
  const auto add = [&all](const std::string& name, const std::string& in, const std::string& rows, const Weighted& c) {
    all.push_back({name, Static(StrCat("i8[", in, "]Q(0.05,3)"), c, StrCat("i8[", c.out, "]Q(0.5,-5)"))});
    all.push_back({"dynamic_" + name, Dynamic(in, rows, c), false, 1e-3});
  };
  for (const auto& [inner, columns] : {std::pair{1, 1}, {3, 5}, {63, 63}, {64, 64}, {65, 16}, {129, 65}, {196, 129}})
    for (const std::string rows : {"4*s0-3", "2*s0+3"})  // 1 to 33
      add(StrCat("tiles_linear_", inner, "_", columns, rows[0] == '4' ? "_1" : "_5"), StrCat(rows, ",", inner), rows,
          {"quantized_linear", StrCat(columns, ",", inner), StrCat(rows, ",", columns), columns, ""});
  for (const int channels : {1, 3, 63, 64, 65, 130, 196})
    for (const int width : {1, 16, 17, 18})
      add(StrCat("tiles_conv_", channels, "_", width), StrCat("s0,", channels, ",1,", width), "s0",
          {kConvolution, StrCat("70,", channels, ",1,3"), StrCat("s0,70,1,", width), 70, Conv("1,1", "0,1", "1,1", 1)});
  return all;
}

std::vector<Case> Elementwise() {
  return {
      {"quantize", Expand("graph @f(%x: f32[2,s0]) {\n %y = quantize %x {scale=0.02, zero_point=-3, out_dtype=i8} : i8[2,s0]Q(0.02,-3)\n"
                          " return %y\n}")},
      {"dequantize", Expand("graph @f(%x: i8[2,s0]Q(0.02,-3)) {\n %y = dequantize %x {scale=0.02, zero_point=-3} : f32[2,s0]\n return %y\n}")},
      {"add", Binary("add", "2,s0,5", "2,s0,5", "0.06")},
      {"add_broadcast", Binary("add", "s0,1", "2,s0,5", "0.06")},
      {"add_alpha", Binary("add", "2,s0,5", "s0,5", "0.2", " {alpha=3}")},
      {"add_beyond_the_ratio", Binary("add", "2,s0,5", "2,s0,5", "1e-05")},
      {"sub", Binary("sub", "2,s0,5", "2,s0,5", "0.06")},
      {"sub_broadcast_first", Binary("sub", "1", "2,s0,5", "0.06")},
      {"sub_broadcast_second", Binary("sub", "2,s0,5", "5", "0.06")},
      {"mul", Binary("mul", "2,s0,5", "s0,1", "0.08")},
      {"mul_beyond_the_ratio", Binary("mul", "2,s0,5", "2,s0,5", "1e-06")},
      {"div", Binary("div", "2,s0,5", "1", "0.5")},
      {"maximum", Binary("maximum", "2,s0,5", "5", "0.05")},
      {"silu_mul", Binary("silu_mul", "2,s0,5", "2,s0,5", "0.2")},
      {"add_constant", Expand("constant @c : i8[]Q(0.01,5) = [77]\ngraph @f(%x: i8[2,s0]Q(0.03,4)) {\n %c = const @c : i8[]Q(0.01,5)\n"
                              " %y = add %x, %c : i8[2,s0]Q(0.04,0)\n return %y\n}")},
      {"relu", Unary("relu", "0.05,7", "0.05,7")},
      {"relu_other_scale", Unary("relu", "0.05,7", "0.03,-128")},
      {"clamp", Unary("clamp", "0.05,7", "0.05,7", " {min=-1.5, max=2.25}")},
      {"hardtanh", Unary("hardtanh", "0.05,-9", "0.05,-9", " {min_val=0, max_val=6}")},
      {"clamps_apart", Expand("graph @f(%x: i8[2,s0]Q(0.05,0)) {\n %a = clamp %x {max=-1} : i8[2,s0]Q(0.05,0)\n"
                              " %y = clamp %a {min=2, max=3} : i8[2,s0]Q(0.05,0)\n return %y\n}")},
      {"sigmoid", Unary("sigmoid", "0.05,7", "0.00390625,-128")},
      {"tanh", Unary("tanh", "0.03,7", "0.0078125,0")},
      {"abs", Unary("abs", "0.05,7", "0.06,-100")},
      {"neg", Unary("neg", "0.05,7", "0.05,-8")},
      {"exp", Unary("exp", "0.02,7", "0.06,-128")},
      {"cos", Unary("cos", "0.05,7", "0.01,0")},
      {"gelu", Unary("gelu", "0.05,7", "0.05,-120")},
      {"silu", Unary("silu", "0.05,7", "0.05,-120")},
      {"softmax", Unary("softmax", "0.05,7", "0.00390625,-128", " {dim=-1}")},
  };
}

std::vector<Case> Shapes() {
  const Weighted same = {kConvolution, "5,3,4", "1,5,s0", 5, Conv("1", "0", "1", 1)};
  return {
      {"view_permute_slice",
       Expand("graph @f(%x: i8[1,s0,12]Q(0.05,3)) {\n %v = view %x {size=[1,s0,3,4]} : i8[1,s0,3,4]Q(0.05,3)\n"
              " %p = permute %v {dims=[0,2,1,3]} : i8[1,3,s0,4]Q(0.05,3)\n %y = slice %p {dim=3, start=1, end=3} : i8[1,3,s0,2]Q(0.05,3)\n"
              " %c = clone %y : i8[1,3,s0,2]Q(0.05,3)\n return %c, %v\n}")},
      {"cat", Expand("graph @f(%x: i8[2,s0]Q(0.05,3), %z: i8[2,s1]Q(0.05,3)) {\n %y = cat %x, %z, %x {dim=1} : i8[2,2*s0+s1]Q(0.05,3)\n return %y\n}")},
      {"pad", Expand("graph @f(%x: i8[2,s0,3]Q(0.05,3)) {\n %y = constant_pad_nd %x {pad=[1,2,0,3], value=0.5} : i8[2,s0+3,6]Q(0.05,3)\n return %y\n}")},
      {"pad_before_one_dim",  // "same" padding of an even kernel
       Expand(StrCat(Constants(same), "graph @f(%x: i8[1,3,s0]Q(0.05,3)) {\n", Reads(same),
                     " %p = constant_pad_nd %x {pad=[1,2], value=0} : i8[1,3,s0+3]Q(0.05,3)\n"
                     " %y = quantized_convolution %p, _, _, %w, %s, %b", same.attrs, " : i8[1,5,s0]Q(0.2,0)\n return %y\n}"))},
      {"max_pool", Expand("graph @f(%x: i8[s0,3,8,9]Q(0.05,3)) {\n %y, %i = max_pool2d_with_indices %x {kernel_size=[3,2], stride=[2,2], padding=[1,0], "
                          "dilation=[1,1], ceil_mode=true} : i8[s0,3,5,5]Q(0.05,3), i64[s0,3,5,5]\n return %y\n}")},
      {"avg_pool", Expand("graph @f(%x: i8[s0,3,8,9]Q(0.05,3)) {\n %y = avg_pool2d %x {kernel_size=[3,3], stride=[1,2], padding=[1,1], ceil_mode=false, "
                          "count_include_pad=true} : i8[s0,3,8,5]Q(0.03,3)\n return %y\n}")},
      {"mean_spatial", Expand("graph @f(%x: i8[s0,3,17,19]Q(0.05,3)) {\n %y = mean %x {dim=[2,3], keepdim=true} : i8[s0,3,1,1]Q(0.004,3)\n"
                              " %z = mean %x {dim=[-1,-2]} : i8[s0,3]Q(0.01,-60)\n return %y, %z\n}")},
      {"mean_last", Expand("graph @f(%x: i8[2,s0,6]Q(0.05,3)) {\n %y = mean %x {dim=[-1], keepdim=true} : i8[2,s0,1]Q(0.03,3)\n return %y\n}")},
      {"outputs", Expand("constant @c : i8[3]Q(0.1,1) = [1,2,3]\ngraph @f(%x: i8[s0,3]Q(0.05,7)) {\n %c = const @c : i8[3]Q(0.1,1)\n"
                         " %y = relu %x : i8[s0,3]Q(0.05,7)\n return %x, %y, %y, %c\n}")},
  };
}

std::vector<Case> Networks() {
  const Weighted last = {kConvolution, "8,1,3,3", "s0,8,8,9", 8, Conv("1,1", "1,1", "1,1", 4)};
  const Weighted first = {kConvolution, "4,3,3,3", "s0,4,8,8", 4, Conv("1,1", "1,1", "1,1", 1)};
  return {
      {"conv_to_f32", Expand(StrCat(Constants(last), "graph @f(%x: i8[s0,4,8,9]Q(0.05,3)) {\n", Reads(last),
                                    " %y = quantized_convolution %x, _, _, %w, %s, %b", last.attrs,
                                    " : f32[s0,8,8,9]\n %g = gelu %y : f32[s0,8,8,9]\n return %g\n}"))},
      // Constants in the order of dims that the convolution leaves, one for each element of its result.
      {"constants_channels_last",
       Expand(StrCat("constant @m : i8[1,4,8,8]Q(0.05,5) = external\n", Constants(first), "graph @f(%x: i8[s0,3,8,8]Q(0.03,0)) {\n", Reads(first),
                     " %m = const @m : i8[1,4,8,8]Q(0.05,5)\n %y = quantized_convolution %x, _, _, %w, %s, %b", first.attrs,
                     " : i8[s0,4,8,8]Q(0.1,3)\n %a = add %y, %m : i8[s0,4,8,8]Q(0.12,-30)\n %b2 = maximum %a, %m : i8[s0,4,8,8]Q(0.1,-30)\n"
                     " return %a, %b2\n}")),
       false, 0, 2},
      {"chain",
       Expand(StrCat("constant @m : i8[1,4,1,1]Q(0.01,5) = [1,-50,77,100]\n", Constants(first), "graph @f(%x: f32[s0,3,8,8]) {\n", Reads(first),
                     " %m = const @m : i8[1,4,1,1]Q(0.01,5)\n %q = quantize %x {scale=0.03, zero_point=0, out_dtype=i8} : i8[s0,3,8,8]Q(0.03,0)\n"
                     " %y = quantized_convolution %q, _, _, %w, %s, %b", first.attrs, " : i8[s0,4,8,8]Q(0.1,3)\n %r = relu %y : i8[s0,4,8,8]Q(0.1,3)\n"
                     " %a = add %r, %m : i8[s0,4,8,8]Q(0.12,-30)\n"
                     " %p, %i = max_pool2d_with_indices %a {kernel_size=[2,2]} : i8[s0,4,4,4]Q(0.12,-30), i64[s0,4,4,4]\n"
                     " %g = gelu %p : i8[s0,4,4,4]Q(0.1,-100)\n %c = cat %g, %g {dim=1} : i8[s0,8,4,4]Q(0.1,-100)\n"
                     " %v = view %c {size=[s0,128]} : i8[s0,128]Q(0.1,-100)\n return %v, %r\n}")),
       false, 0, 2},
      // A step off in each of its layers is more in the last.
      {"classifier",
       Expand(StrCat("constant @v : i8[5,4]{per_channel axis=0} = external\nconstant @sv : f32[5] = external\n", Constants(first),
                     "graph @f(%x: f32[s0,3,8,8]) {\n", Reads(first), " %v = const @v : i8[5,4]{per_channel axis=0}\n %sv = const @sv : f32[5]\n"
                     " %q = quantize %x {scale=0.03, zero_point=0, out_dtype=i8} : i8[s0,3,8,8]Q(0.03,0)\n"
                     " %y = quantized_convolution %q, _, _, %w, %s, %b", first.attrs, " : i8[s0,4,8,8]Q(0.1,3)\n"
                     " %g = sigmoid %y : i8[s0,4,8,8]Q(0.00390625,-128)\n %m = mul %y, %g : i8[s0,4,8,8]Q(0.1,-100)\n"
                     " %p = constant_pad_nd %m {pad=[1,0,0,1], value=0.2} : i8[s0,4,9,9]Q(0.1,-100)\n"
                     " %a = avg_pool2d %p {kernel_size=[2,2], stride=[2,2]} : i8[s0,4,4,4]Q(0.08,-100)\n %t = tanh %a : i8[s0,4,4,4]Q(0.0078125,0)\n"
                     " %e = mean %t {dim=[2,3]} : i8[s0,4]Q(0.007,0)\n %l = quantized_linear %e, _, _, %v, %sv, _ : i8[s0,5]Q(0.02,0)\n"
                     " %d = dequantize %l {scale=0.02, zero_point=0} : f32[s0,5]\n %o = softmax %d {dim=-1} : f32[s0,5]\n return %o\n}")),
       false, 0.04},
  };
}

}  // namespace

const std::vector<Case>& QuantizedCases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    for (const std::vector<Case>& some : {Linears(), Tiles(), Elementwise(), Shapes(), Networks()}) all.insert(all.end(), some.begin(), some.end());
    for (const Layer& l : Convolutions()) {
      all.push_back({"conv_" + l.name, Static(StrCat("i8[", l.in, "]Q(0.05,3)"), l.c, StrCat("i8[", l.c.out, "]Q(0.2,-5)"))});
      all.push_back({"conv_dynamic_" + l.name, Dynamic(l.in, l.in.substr(0, l.in.find(',')), l.c), false, 1e-3});
    }
    return all;
  }();
  return cases;
}

}  // namespace dovetail
