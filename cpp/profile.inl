// Covariances as functions of the exponent q <= 0, which the packing scales so that (s is the squared distance of the
// scaled features, b = sqrt(2 nu s)):
//   rbf                 q = -s log2(e) / 2          k = 2^q
//   matern              q = -b^2 log2(e)^2          k = poly(b) 2^-a,  a = sqrt(-q) = b log2(e)
//   rational quadratic  q = -s / (2 alpha)          k = 2^(-alpha log2(1 - q))
//   linear              q = x.y                     k = q
// Each also gives its slope dk/dq, and the rational quadratic dk/dalpha at fixed s.

template <class T>
struct Constants;
template <>
struct Constants<float> {
  static constexpr int degree = 5, odd_terms = 5;
  // 2^f on [0, 1), relative error 7.5e-8: no larger than float's own rounding, so nothing coherent is left.
  static constexpr float power[degree + 1] = {0.99999992506f, 0.69315307321f, 0.24015361698f,
                                              0.055826318232f, 0.0089893398766f, 0.0018775767657f};
  static constexpr float tiny = 1e-30f;
};
template <>
struct Constants<double> {
  static constexpr int degree = 11, odd_terms = 12;
  static constexpr double power[degree + 1] = {
      1.0, 0.6931471805599465259, 0.2402265069590427773, 0.0555041086659011981,
      0.009618129097245029602, 0.001333355873491951536, 0.0001540350928370369056, 0.00001525323114136426254,
      1.320769749209033067e-6, 1.025818885418417411e-7, 6.538608553499254727e-9, 6.30147811743377886e-10};
  static constexpr double tiny = 1e-290;
};
inline constexpr double kLn2 = 0.693147180559945309417;

// 2^x where x > least, else 0.
template <class T>
inline Vec<T> power_of_two(Vec<T> x, Vec<T> least) {
  using C = Constants<T>;
  const Vec<T> f = fraction(x);
  Vec<T> p = broadcast(C::power[C::degree]);
#pragma GCC unroll 16
  for (int i = C::degree - 1; i >= 0; --i) p = fma(p, f, broadcast(C::power[i]));
  return scale_by_power(p, x, least);
}

// The square root of x >= tiny and its reciprocal.
inline void square_root(F x, F& root, F& reciprocal) {
  const F y = reciprocal_sqrt_estimate(x), r = x * y, h = y * broadcast(0.5f);
  const F e = fma(broadcast(-1.0f) * r, h, broadcast(0.5f));  // one Newton step squares the estimate's error
  root = fma(r, e, r);
  reciprocal = fma(y, e, y);
}
inline void square_root(D x, D& root, D& reciprocal) {
  root = square_root(x);
  reciprocal = broadcast(1.0) / root;
}

// log2(1 + w) for w >= 0, without the loss of 1 + w for small w: 2 artanh(t), t = (m - 1) / (m + 1), m in [0.71, 1.42).
template <class T>
inline Vec<T> log2_one_plus(Vec<T> w) {
  const Vec<T> one = broadcast(T(1)), u = one + w, root2 = broadcast(T(1.41421356237309504880));
  const Vec<T> m = mantissa(u), half = broadcast(T(0.5));
  const Vec<T> folded = select_greater(m, root2, m * half, m);
  const Vec<T> n = exponent(u) + select_greater(m, root2, one, broadcast(T(0)));
  const Vec<T> small = select_greater(root2, u, w, folded - one);
  const Vec<T> t = small / (small + broadcast(T(2)));
  const Vec<T> t2 = t * t;
  Vec<T> p = broadcast(T(1) / (2 * Constants<T>::odd_terms + 1));
#pragma GCC unroll 16
  for (int i = Constants<T>::odd_terms - 1; i >= 0; --i) p = fma(p, t2, broadcast(T(1) / (2 * i + 1)));
  return fma(t * p, broadcast(T(2 / kLn2)), n);
}

template <class T>
struct ProfileParameters {
  Vec<T> least, alpha;
};

template <Profile P, class T>
inline Vec<T> covariance(Vec<T> q, const ProfileParameters<T>& with) {
  const Vec<T> zero = broadcast(T(0)), one = broadcast(T(1));
  if constexpr (P == Profile::rbf) return power_of_two(q, with.least);
  if constexpr (P == Profile::linear) return q;
  if constexpr (P == Profile::rational_quadratic)
    return power_of_two(zero - with.alpha * log2_one_plus(max(zero - q, zero)), with.least);
  if constexpr (P == Profile::matern12 || P == Profile::matern32 || P == Profile::matern52) {
    Vec<T> a, reciprocal;
    square_root(max(zero - q, broadcast(Constants<T>::tiny)), a, reciprocal);
    const Vec<T> k = power_of_two(zero - a, with.least), b = a * broadcast(T(kLn2));
    if constexpr (P == Profile::matern32) return fma(b, k, k);
    if constexpr (P == Profile::matern52) return fma(b * fma(b, broadcast(T(1.0 / 3)), one), k, k);
    return k;
  }
}

template <class T>
struct Sloped {
  Vec<T> value, slope, shape_slope;
};

template <Profile P, class T>
inline Sloped<T> covariance_and_slope(Vec<T> q, const ProfileParameters<T>& with) {
  const Vec<T> zero = broadcast(T(0)), one = broadcast(T(1)), ln2 = broadcast(T(kLn2));
  if constexpr (P == Profile::rbf) {
    const Vec<T> k = power_of_two(q, with.least);
    return {k, k * ln2, zero};
  }
  if constexpr (P == Profile::linear) return {q, one, zero};
  if constexpr (P == Profile::rational_quadratic) {
    const Vec<T> w = max(zero - q, zero), l = log2_one_plus(w), shrink = one / (one + w);
    const Vec<T> k = power_of_two(zero - with.alpha * l, with.least);
    return {k, with.alpha * k * shrink, k * (w * shrink - l * ln2)};
  }
  if constexpr (P == Profile::matern12 || P == Profile::matern32 || P == Profile::matern52) {
    const Vec<T> tiny = broadcast(Constants<T>::tiny), minus_q = max(zero - q, tiny);
    Vec<T> a, reciprocal;
    square_root(minus_q, a, reciprocal);
    const Vec<T> k = power_of_two(zero - a, with.least), b = a * ln2;
    // At distance zero the slope of Matern-1/2 is infinite, but every use of it is multiplied by that distance.
    if constexpr (P == Profile::matern12)
      return {k, select_greater(minus_q, tiny, k * reciprocal * broadcast(T(kLn2 / 2)), zero), zero};
    if constexpr (P == Profile::matern32) return {fma(b, k, k), k * broadcast(T(kLn2 * kLn2 / 2)), zero};
    const Vec<T> one_plus = fma(b, k, k) * broadcast(T(kLn2 * kLn2 / 6));
    return {fma(b * fma(b, broadcast(T(1.0 / 3)), one), k, k), one_plus, zero};
  }
}

// Calls `f` with the profile as a compile-time constant.
template <class Function>
inline void with_profile(Profile profile, Function f) {
  switch (profile) {
    case Profile::rbf: return f.template operator()<Profile::rbf>();
    case Profile::matern12: return f.template operator()<Profile::matern12>();
    case Profile::matern32: return f.template operator()<Profile::matern32>();
    case Profile::matern52: return f.template operator()<Profile::matern52>();
    case Profile::rational_quadratic: return f.template operator()<Profile::rational_quadratic>();
    case Profile::linear: return f.template operator()<Profile::linear>();
  }
}
