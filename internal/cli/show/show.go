// Package show finds resources for users and prints them.
//
// In: kinds, names, selectors, a store, and the value of -o. Out: rows or documents.
package show
