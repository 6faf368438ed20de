// Package helmchart renders the product's Helm chart with Helm's own engine, for the tests and for the generator of
// charts/rendered. The product itself must not import it: its binary carries what was rendered, and not the engine (ADR
// 0016).
package helmchart
