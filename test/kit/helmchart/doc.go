// Package helmchart renders the product's Helm chart with Helm's own engine, for the tests and for the generator of
// charts/rendered. The product's binary carries what was rendered, and not the engine (ADR 0020).
package helmchart
