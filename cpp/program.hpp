// What a tile of a kernel matrix is, in plain data: shared by the scheduler, which fills these in, and by the
// instruction-set targets, which read them. No standard containers here: the targets are compiled with wider
// instruction sets, and a template instantiated there must never be linked into code that runs everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfgp {

// Points are packed in panels: strips of kStrip points, and in each strip column after column (a feature of the points,
// a right-hand side, ...), kStrip values each. Features, right-hand sides and results share this layout.
inline constexpr int kStrip = 64;
// A block is the unit of scheduling: every pair of blocks is one task.
inline constexpr int kBlock = 256;
inline constexpr int kStrips = kBlock / kStrip;
// Entries are evaluated kSubtile columns at a time, so that kSubtile x kBlock of them stay in the first-level cache.
inline constexpr int kSubtile = 32;
inline constexpr std::size_t kAlignment = 64;
// What landmarks explain comes in so many columns at a time: whole vectors of every target.
inline constexpr int kLandmarks = 8;

enum class Profile : std::int32_t { rbf, matern12, matern32, matern52, rational_quadratic, linear };
// Their names in Python, in that order.
inline constexpr const char* kProfileNames[] = {"rbf", "matern12", "matern32", "matern52", "rational_quadratic", "linear"};
enum class NodeKind : std::int32_t { leaf, constant, add, multiply };

// How the squared distance of a pair of points is formed.
enum class Path : std::int32_t {
  expansion,    // x.y - |x|^2/2 - |y|^2/2: one multiply-add a feature; loses digits far from the centre
  difference,   // sum of (x - y)^2: two operations a feature, no cancellation
  fixed_point,  // the expansion in 16-bit integers: exact, and two features an instruction
};

// Entry formats of stored tiles.
enum class Stored : std::int32_t { none, float16, bfloat16, native };

struct Node {
  NodeKind kind;
  std::int32_t a, b;
};

struct Leaf {
  Profile profile;
  std::int32_t features;
  std::int32_t shared_scale;     // one lengthscale for all features: its gradient needs no products with the features
  std::int32_t by_products;      // gradients of tiles near the centre come from products with the features
  std::int32_t wants_features;   // gradients in the features are asked for
  double shape;                  // alpha of the rational quadratic
  double least_exponent;         // entries whose power of two lies below this are zero
  double fixed_unit;             // -(step^2) in units of the exponent, for Path::fixed_point
};

// The expression is a tree in static single assignment: node i is computed from earlier nodes, the last is the root.
struct Program {
  std::int32_t leaf_count, node_count;
  const Leaf* leaves;
  const Node* nodes;
  const double* constants;
  double negligible;  // entries of the root at most this large are zero (0: none)
};

// One block of points, seen by one leaf. `features` is a panel of psi, where psi = sqrt(2 kappa) * scaled feature and
// kappa makes the exponent q = psi_i.psi_j + norm_i + norm_j (see profile.inl); norms are -|psi|^2 / 2.
struct LeafBlock {
  const void* features;
  const void* norms;
  const std::int32_t* fixed_features;  // pairs of 16-bit integers, panel of (features + 1) / 2 columns
  const std::int32_t* fixed_norms;     // |.|^2 of those integers
};

// Strips first ... last - 1 of a tile's rows.
struct Span {
  std::int32_t first = 0, last = kStrips;
};

struct Tile {
  const Program* program;
  const LeafBlock* rows;     // by leaf
  const LeafBlock* columns;  // by leaf
  const Path* paths;         // by leaf
  std::int32_t near;         // all points of both blocks are near the centre of every leaf
  std::int32_t first_row, row_count, column_count;  // rows first_row ... row_count - 1; first_row begins a strip
  Span spans[kStrips];       // by strip of columns: which rows these have entries with; others are zero
  std::int32_t diagonal;     // rows and columns are the same block: entries (i, i) are left zero
  const void* stored;        // entries held in memory: column_count (padded) x kBlock of them, or null
  Stored stored_format;
};

// The right-hand sides of a pair of blocks and the places for its results (panels of `count` columns).
struct Product {
  std::int32_t count;
  const void* row_vectors;     // null unless the transposed tile is multiplied too
  const void* column_vectors;
  void* row_results;           // overwritten: K V_columns
  void* column_results;        // overwritten: K' V_rows, or null
};

// A tile's share of the gradient of sum_ij W_ij K_ij, W = row_weights . column_weights.
struct Gradient {
  std::int32_t weight_count;
  const void* row_weights;     // panels of weight_count columns
  const void* column_weights;
  double* root;                // += sum W K
  double* constants;           // += by constant
  double* shapes;              // += by leaf
  double* const* scales;       // by leaf: += d/d log(scale), `features` of them or one
  double* const* row_features;     // by leaf: panel += d/d psi of the rows, or null
  double* const* column_features;  // by leaf: panel += d/d psi of the columns, or null
  double weight;               // of the scalar sums: 1/2 where a diagonal tile meets each pair twice
};

// Up to a vector's lanes of rows, each given `neighbours` others (-1 where it has fewer), and the places for what follows:
// see conditionals.inl.
struct Conditional {
  const Program* program;
  double scale;                        // of the kernel
  const double* const* features;       // by leaf: (points, features) row-major, scaled
  const double* factors;               // by leaf: from those to psi
  const double* diagonal;              // by point: variance and noise
  const double* targets;               // (points, target_count)
  const std::int64_t* rows;            // (count)
  const std::int64_t* members;         // (count, neighbours)
  const double* explained;             // (points, landmarks): products of its rows are taken from the covariances; or null
  std::int32_t landmarks;              // a multiple of kLandmarks
  std::int32_t count, neighbours, target_count, constant_count;
  std::int32_t gradient;               // whether the loss is to be differentiated
  double* residuals;                   // (count, target_count), over their deviations
  double* deviations;                  // (count)
  double* factor;                      // (count, neighbours + 1), the row itself last; or null
  double* by_diagonal;                 // (count, neighbours + 1): the gradient in `diagonal`
  double* by_features;                 // (count, neighbours + 1, all features): in psi; or null
  double* sums;                        // += root, constants, shapes by leaf, d/d log(scale) by feature (or the first)
};

// Rows that lie together and the members that all of them are given: see group.inl.
struct RowGroup {
  const Program* program;
  double scale;                   // of the kernel
  const double* const* features;  // by leaf: (points, features) row-major, scaled
  const double* factors;          // by leaf: from those to psi
  const double* diagonal;         // by point: variance and noise
  const double* explained;        // (points, landmarks): products of its rows are taken from the covariances
  std::int32_t landmarks;
  std::int32_t member_count, row_count;
  const std::int64_t* members;    // (member_count), each before the rows
  std::int64_t first;             // of the rows, which follow it
};

// What an instruction set provides, for one scalar type.
struct TileFunctions {
  std::size_t (*scratch_bytes)(const Program&);
  void (*product)(const Tile&, const Product&, void* scratch);
  void (*accumulate)(const void* parts, std::size_t count, double* sums);       // sums += parts
  void (*gradient)(const Tile&, const Gradient&, void* scratch);
  void (*evaluate)(const Tile&, void* entries, void* scratch);                  // column_count x kBlock, column after column
  void (*store)(const Tile&, Stored, void* entries, void* scratch);             // the same, encoded
  int lanes;
  std::size_t (*conditional_bytes)(const Conditional&);
  void (*conditional)(const Conditional&, void* scratch);
};

struct Target {
  const char* name;
  TileFunctions single, double_;
  bool fixed_point;                              // Path::fixed_point is worth its while
  // Squared distances of a point to those of a strip (a panel of features), and which are below a limit, by bit.
  std::uint64_t (*near_strip)(const double* strip, int features, const double* point, double limit, double* distances);
  std::size_t (*group_bytes)(const RowGroup&);
  bool (*factor_group)(const RowGroup&, void* scratch, double* entries);
  double (*multiply_adds)(std::int64_t rounds);  // executes independent single multiply-adds, returns how many
};

}  // namespace halfgp
